package notes

import "testing"

const changelog = `# Changelog

What a user would notice, newest first.

## Unreleased

- Not yet.

## v1.2.3 (2026-11-26)

- One, with [a page](docs/a.md#b), [a site](https://example.com/x) and [a place](#v122).

- Two.

## v1.2.2

- An older one.

## v1.2.1
`

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"v1.2.3": "- One, with [a page](https://example.com/at/docs/a.md#b), [a site](https://example.com/x) and [a place](#v122).\n\n- Two.\n",
		"v1.2.2": "- An older one.\n",

		"v0.0.0-20261126220000-0123456789ab": "- Not yet.\n",
		"v1.2.4-rc.1":                        "- Not yet.\n",
	} {
		if have, err := Of(changelog, version, "https://example.com/at/"); err != nil || have != want {
			t.Errorf("those of %s are %q (%v)", version, have, err)
		}
	}
}

func TestVersionWithoutNotes(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"v1.2.1", "v1.2", "v1.2.4", ""} {
		if have, err := Of(changelog, version, ""); err == nil {
			t.Errorf("those of %q are %q", version, have)
		}
	}
}
