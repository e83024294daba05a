// Command program is a small one that has a module in it.
package main

import "github.com/google/uuid"

func main() { println(uuid.Nil.String()) }
