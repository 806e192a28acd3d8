//go:build soak

package account_test

import "testing"

// go test -tags soak -run Many -v -timeout 3h ./account
func TestManyRandomSettings(t *testing.T) { fuzzMany(t, 2000) }

func TestManyCorrelatedSettings(t *testing.T) { correlatedMany(t, 5000) }

func TestAskManyRandomSettings(t *testing.T) { askAnything(t, 300) }
