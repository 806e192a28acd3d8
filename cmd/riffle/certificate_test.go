package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
)

// A check that takes longer than it may says so, and that the claim may be true.
func TestVerifyWithin(t *testing.T) {
	d, err := account.Certify(t.Context(), account.Query{Participation: dp.All, Eps0: 1, Population: 1000, Rounds: 1, Delta: 1e-6}, "")
	if err != nil {
		t.Fatal(err)
	}
	cmd := &cobra.Command{}
	cmd.SetErr(new(bytes.Buffer))
	cmd.SetContext(t.Context())
	if _, err := verifyWithin(cmd, d, -1); !errors.Is(err, certificate.ErrRejected) || !strings.Contains(err.Error(), "was stopped after") {
		t.Errorf("error %v", err)
	}
	if _, err := verifyWithin(cmd, d, verifyTime); err != nil {
		t.Error(err)
	}
}
