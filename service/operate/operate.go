// Package operate runs the roles as processes and looks after what they keep:
// configurations, keys, wiring of services to addresses and stores, the operator
// API, and the commands for stores at rest (check, migrate, ledger).
//
// It decides nothing about privacy; the services and the pure roles below do.
package operate
