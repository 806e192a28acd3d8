package main

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/service/registrar"
)

// registrarFlags name the running registrar.
type registrarFlags struct{ config, socket string }

func (f *registrarFlags) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.config, "config", "", "the registrar's configuration, which names its socket")
	cmd.Flags().StringVar(&f.socket, "socket", "", "the socket itself")
}

func (f registrarFlags) client() (c operate.RegistrarClient, err error) {
	switch {
	case (f.config == "") == (f.socket == ""):
		return c, usage("give one of --config and --socket")
	case f.config != "":
		own, err := config.Load[config.Registrar](f.config)
		if err != nil {
			return c, operateError(err)
		}
		f.socket = own.Operator
	}
	if info, err := os.Stat(f.socket); err != nil {
		return c, fmt.Errorf("no registrar is running: %v", err)
	} else if info.Mode().Type() != os.ModeSocket {
		return c, usage("%s is no socket", f.socket)
	}
	return operate.NewRegistrarClient(f.socket), nil
}

func newRegistrar() *cobra.Command {
	cmd := &cobra.Command{
		Use: "registrar", Short: "Enrol and revoke clients at a running registrar",
		Long: `Registrar changes the roster that a running registrar (riffle serve registrar) signs.
The shuffler takes the new roster within seconds. Rounds that are open go on with the
clients that were enrolled when they were announced and were not revoked since; tasks
go on with the new roster. A key that was revoked cannot be enrolled again: its client
needs a new one (riffle keygen client).`,
		Example: `  riffle registrar add --config docs/deploy/registrar.yaml phones/roster.txt
  riffle registrar revoke --config docs/deploy/registrar.yaml 00112233445566778899aabbccddeeff
  riffle registrar list --config docs/deploy/registrar.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRegistrarAdd(), newRegistrarRevoke(), newRegistrarList(), newRegistrarRenew(), newRegistrarExport())
	return cmd
}

// changed shows what a change did.
func changed(cmd *cobra.Command, show output, c registrar.Change) error {
	if show.json {
		return printJSON(cmd.OutOrStdout(), c)
	}
	p := printer{w: cmd.OutOrStdout()}
	p.row("roster", "%d, of %s: %d added, %d revoked", c.Serial, counted(c.Clients, "client"), c.Added, c.Revoked)
	return p.err
}

func newRegistrarAdd() *cobra.Command {
	var at registrarFlags
	var show output
	cmd := &cobra.Command{
		Use: "add FILE...", Short: "Enrol the clients of files of roster lines",
		Long: `Add enrols the clients whose lines (roster.txt of riffle keygen client) are in the
files, all of them or none. Clients that are enrolled already stay so.`,
		Example: "  riffle registrar add --config docs/deploy/registrar.yaml phones/roster.txt",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("want a file of roster lines")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var q registrar.Request
			for _, path := range args {
				keys, err := config.LoadRoster(path)
				if err != nil {
					return usageError(err)
				}
				for k := range slices.Chunk(keys, ed25519.PublicKeySize) {
					q.Add = append(q.Add, k)
				}
			}
			c, err := at.client()
			if err != nil {
				return err
			}
			done, err := c.Change(cmd.Context(), q)
			if err != nil {
				return operateError(err)
			}
			return changed(cmd, show, done)
		},
	}
	at.flags(cmd)
	show.flags(cmd.Flags())
	return cmd
}

func newRegistrarRevoke() *cobra.Command {
	var at registrarFlags
	var show output
	cmd := &cobra.Command{
		Use: "revoke CLIENT...", Short: "Revoke clients, for good",
		Long: `Revoke takes clients off the roster, all that are named or none: those that leave,
and those whose keys may be in other hands. They are named by their ids (32 hex
digits, as riffle registrar list shows them). It cannot be undone.`,
		Example: "  riffle registrar revoke --config docs/deploy/registrar.yaml 00112233445566778899aabbccddeeff",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("want the id of a client")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			done, err := c.Change(cmd.Context(), registrar.Request{Revoke: args})
			if err != nil {
				return operateError(err)
			}
			return changed(cmd, show, done)
		},
	}
	at.flags(cmd)
	show.flags(cmd.Flags())
	return cmd
}

func newRegistrarRenew() *cobra.Command {
	var at registrarFlags
	var above int64
	var show output
	cmd := &cobra.Command{
		Use: "renew", Short: "Sign the roster again, above a serial",
		Long: `Renew signs the roster as it is, with a serial above the given one. It is for a
registrar whose store was restored from a backup: the others have seen newer rosters and
refuse the old one. Revoke again first what the backup does not know. The serial that the
others have seen is in the shuffler's log and status.`,
		Example: "  riffle registrar renew --config docs/deploy/registrar.yaml --above 17",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if above < 1 {
				return usage("--above %d must be at least 1", above)
			}
			if above > registrar.MostSerial {
				return usage("--above %d must be at most %d, no registrar signs more", above, int64(registrar.MostSerial))
			}
			c, err := at.client()
			if err != nil {
				return err
			}
			done, err := c.Change(cmd.Context(), registrar.Request{Above: above})
			if err != nil {
				return operateError(err)
			}
			return changed(cmd, show, done)
		},
	}
	at.flags(cmd)
	cmd.Flags().Int64Var(&above, "above", 0, "the highest serial that anyone has seen")
	show.flags(cmd.Flags())
	return cmd
}

// rosterJSON is the output of registrar list.
type rosterJSON struct {
	Serial  int64    `json:"serial"`
	Clients int64    `json:"clients"`
	Digest  string   `json:"digest"`
	Until   string   `json:"until"`
	IDs     []string `json:"ids"`
	Revoked []string `json:"revoked"`
}

func newRegistrarList() *cobra.Command {
	var at registrarFlags
	var show output
	cmd := &cobra.Command{
		Use: "list", Short: "List the enrolled clients and the revoked ones",
		Long:    `List prints the ids of the enrolled clients, one a line, then what was signed.`,
		Example: "  riffle registrar list --config docs/deploy/registrar.yaml --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			l, err := c.List(cmd.Context())
			if err != nil {
				return operateError(err)
			}
			out := rosterJSON{Serial: l.Serial, Clients: l.Clients, Digest: l.Digest, IDs: []string{}, Revoked: l.Revoked}
			if l.Serial > 0 {
				out.Until = time.Unix(l.To, 0).UTC().Format(time.RFC3339)
			}
			for _, k := range l.Keys {
				out.IDs = append(out.IDs, fmt.Sprintf("%x", wire.ClientID(ed25519.PublicKey(k))))
			}
			if show.json {
				return printJSON(cmd.OutOrStdout(), out)
			}
			p := printer{w: cmd.OutOrStdout()}
			for _, id := range out.IDs {
				p.line("%s", id)
			}
			for _, id := range out.Revoked {
				p.line("%s revoked", id)
			}
			if l.Serial == 0 {
				show.note(cmd.ErrOrStderr(), "nobody is enrolled yet: riffle registrar add")
				return p.err
			}
			p.row("roster", "%d, of %s, until %s", out.Serial, counted(out.Clients, "client"), out.Until)
			p.row("digest", "%s", out.Digest)
			return p.err
		},
	}
	at.flags(cmd)
	show.flags(cmd.Flags())
	return cmd
}

func newRegistrarExport() *cobra.Command {
	var at registrarFlags
	var file string
	var show output
	cmd := &cobra.Command{
		Use: "export", Short: "Write the signed roster to a file, for a shuffler that cannot fetch it",
		Long: `Export writes the signed roster with the clients' public keys. A shuffler whose
configuration gives the registrar a key and no url reads it as its roster, whenever the
file changes.`,
		Example: "  riffle registrar export --config docs/deploy/registrar.yaml --out roster.signed",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := at.client()
			if err != nil {
				return err
			}
			b, err := c.Signed(cmd.Context())
			if err != nil {
				return operateError(err)
			}
			if err := durable.WriteFile(file, b); err != nil {
				return err
			}
			show.note(cmd.ErrOrStderr(), "give %s to the shuffler's operator", file)
			if show.json {
				return printJSON(cmd.OutOrStdout(), map[string]any{"file": file, "bytes": len(b)})
			}
			return nil
		},
	}
	at.flags(cmd)
	require(cmd, &file, "out", "file to write, in place of the one that is there")
	show.flags(cmd.Flags())
	return cmd
}
