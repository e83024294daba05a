// Package sample is a controller that was written for client-go. A build tag selects its
// broadcasters, in one file: with clientgo those of client-go, without it those of eventd.
package sample
