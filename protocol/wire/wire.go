// Package wire holds the messages between the roles and their canonical encoding, which
// SPEC.md describes byte by byte.
//
// The roles (client, shuffler, coordinator) know each other only through these types.
// Payloads are opaque here: the shuffler never needs to see one. A message has one encoding:
// bytes that decode encode to the same bytes.
package wire
