// Package browser tests the page in a real browser: Chromium, which has to be there. "make browser" runs it.
package browser
