// Package operate runs the program's roles as processes. It connects the services to
// addresses, stores and each other, answers the operator API, and has the commands for stores
// at rest (check, migrate, ledger, replay).
//
// It decides nothing about privacy; the services and the pure roles do.
package operate
