// Package netlab makes machines and a network between them for tests: each machine is a network
// namespace of Linux whose only link ends in the test's process, which passes packets on, loses
// them, delays them, or cuts two machines apart. It needs no tool, and no rights where the
// system lets users make namespaces.
package netlab
