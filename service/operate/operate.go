// Package operate runs the roles as processes: it joins the services to addresses,
// stores and each other, answers the operator API, and has the commands for stores at
// rest (check, migrate, ledger, replay). It is for the program.
//
// It decides nothing about privacy; the services and the pure roles below do.
package operate
