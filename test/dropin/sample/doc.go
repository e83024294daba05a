// Package sample is a controller as its author wrote it against client-go. Which
// broadcasters it runs on is decided in one file, by a build tag: with clientgo
// they are client-go's, without it eventd's. Everything else is the same.
package sample
