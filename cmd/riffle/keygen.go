package main

import (
	"encoding/hex"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/setting"
	"github.com/riffle-dp/riffle/service/config"
)

func newKeygen() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keygen",
		Short: "Make the keys of a role",
		Long: `Keygen makes private keys, which only their owner can read and which are never
overwritten. It prints the public parts that the other parties need;
docs/deploy/GUIDE.md says who gets what.`,
		Example: `  riffle keygen shuffler --out keys
  riffle keygen tls --out keys --host shuffler.example
  riffle keygen client --out phones --count 100`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, role := range []string{"shuffler", "coordinator", "aggregator"} {
		cmd.AddCommand(newKeygenRole(role))
	}
	cmd.AddCommand(newKeygenRegistrar(), newKeygenWorker(), newKeygenClient(), newKeygenTLS())
	return cmd
}

// made is the output of keygen. The keys of its JSON are part of the contract.
type made struct {
	Role    string   `json:"role"`
	Dir     string   `json:"dir"`
	Files   []string `json:"files"` // the private files
	Signing string   `json:"signing_key,omitempty"`
	Sealing string   `json:"sealing_key,omitempty"`
	SealID  string   `json:"sealing_key_id,omitempty"`
	Expires string   `json:"expires,omitempty"`
	Pin     string   `json:"pin,omitempty"`
	Roster  string   `json:"roster,omitempty"`
	Clients int      `json:"clients,omitempty"`
}

func (m made) show(cmd *cobra.Command, show output, next string) error {
	if show.json {
		return printJSON(cmd.OutOrStdout(), m)
	}
	p := printer{w: cmd.OutOrStdout()}
	for _, row := range [][2]string{{"signing key", m.Signing}, {"sealing key", m.Sealing}, {"sealing key id", m.SealID},
		{"expires", m.Expires}, {"pin", m.Pin}, {"roster lines", m.Roster}} {
		if row[1] != "" {
			p.row(row[0], "%s", row[1])
		}
	}
	for _, f := range m.Files {
		show.note(cmd.ErrOrStderr(), "private, mode 0600: %s", f)
	}
	show.note(cmd.ErrOrStderr(), "%s", next)
	return p.err
}

// seal makes a sealing key.
func (m *made) seal(s wire.Suite, expires time.Duration) error {
	key, file, err := config.GenerateSealing(m.Dir, s, time.Now().Add(expires))
	if err != nil {
		return keygenError(err)
	}
	id := key.ID()
	m.Sealing, m.SealID = config.FormatSealing(key), hex.EncodeToString(id[:])
	m.Expires = time.Unix(key.Expires, 0).UTC().Format(time.RFC3339)
	m.Files = append(m.Files, filepath.Join(m.Dir, file))
	return nil
}

// keygenError marks an error in the caller's input as bad usage.
func keygenError(err error) error {
	if errors.Is(err, os.ErrExist) {
		return usageError(err)
	}
	return err
}

func newKeygenRole(role string) *cobra.Command {
	var dir, suite string
	var expires time.Duration
	var sealingOnly bool
	var show output
	cmd := &cobra.Command{
		Use:   role,
		Short: "Make the keys of a " + role,
		Long: map[string]string{
			"shuffler": `Makes the signing key of the shuffler's operator (enrolments and words on closed
rounds) and a sealing key that clients seal reports to.`,
			"coordinator": `Makes the coordinator's signing key (tasks and announcements) and a sealing key
that clients seal the inner part of reports to.`,
			"aggregator": `Makes the aggregator's signing key (its word on which reports it sums, for tasks with
proofs) and a sealing key that clients seal second shares of vector sums to.`,
		}[role] + `

To replace a sealing key that will expire, run it again with --sealing-only: the
new key lies beside the old one, and both are listed until nothing is sealed to
the old one any more.`,
		Example: "  riffle keygen " + role + " --out keys/" + role + "\n  riffle keygen " + role + " --out keys/" + role + " --sealing-only --expires 4380h",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := config.ParseSuite(suite)
			if err != nil {
				return usageError(err)
			}
			if expires < time.Hour {
				return usage("--expires %v must be at least 1h", expires)
			}
			m := made{Role: role, Dir: dir}
			if !sealingOnly {
				key, err := config.GenerateSigning(dir)
				if err != nil {
					return keygenError(err)
				}
				m.Signing = config.FormatVerifying(key)
				m.Files = append(m.Files, filepath.Join(dir, config.SigningFile))
			}
			if err := m.seal(s, expires); err != nil {
				return err
			}
			return m.show(cmd, show, map[string]string{
				"shuffler":    "give the signing key to the coordinator, the aggregator and the clients; the sealing key goes into the enrolment by itself",
				"coordinator": "give the signing key to the shuffler, the aggregator and the clients; the sealing key goes into announcements by itself",
				"aggregator":  "give the sealing key to the shuffler's operator, who signs it into the enrolment, and the signing key to the coordinator",
			}[role])
		},
	}
	flags := cmd.Flags()
	require(cmd, &dir, "out", "directory for the keys, made if it is not there")
	bind(cmd, setting.Table{{Name: "suite", Into: &suite, Default: suites[0], Values: suites[:], Help: "of the sealing key: %s"}})
	flags.DurationVar(&expires, "expires", 365*24*time.Hour, "how long the sealing key is sealed to")
	flags.BoolVar(&sealingOnly, "sealing-only", false, "make no signing key: the sealing key is replaced, with overlap")
	show.flags(flags)
	flags.SortFlags = false
	return cmd
}

func newKeygenRegistrar() *cobra.Command {
	var dir string
	var show output
	cmd := &cobra.Command{
		Use:     "registrar",
		Short:   "Make the key of a registrar",
		Long:    `Makes the key with which a registrar signs who is enrolled.`,
		Example: "  riffle keygen registrar --out keys/registrar",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := config.GenerateSigning(dir)
			if err != nil {
				return keygenError(err)
			}
			m := made{Role: "registrar", Dir: dir, Signing: config.FormatVerifying(key), Files: []string{filepath.Join(dir, config.SigningFile)}}
			return m.show(cmd, show, "give the signing key to the shuffler, the coordinator, the aggregator and the clients: they take no other roster")
		},
	}
	require(cmd, &dir, "out", "directory for the key, made if it is not there")
	show.flags(cmd.Flags())
	return cmd
}

func newKeygenWorker() *cobra.Command {
	var dir, suite string
	var expires time.Duration
	var show output
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Make the key of a coordinator's worker",
		Long: `Makes the sealing key of a worker, to which the coordinator seals what it takes to open
a round. To replace it, run it again in the same directory and list both keys for a while.`,
		Example: "  riffle keygen worker --out keys/worker-1",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := config.ParseSuite(suite)
			if err != nil {
				return usageError(err)
			}
			if expires < time.Hour {
				return usage("--expires %v must be at least 1h", expires)
			}
			m := made{Role: "worker", Dir: dir}
			if err := m.seal(s, expires); err != nil {
				return err
			}
			return m.show(cmd, show, "list the sealing key in the coordinator's worker-keys: a worker whose key is not listed gets nothing")
		},
	}
	flags := cmd.Flags()
	require(cmd, &dir, "out", "directory for the key, made if it is not there")
	bind(cmd, setting.Table{{Name: "suite", Into: &suite, Default: suites[0], Values: suites[:], Help: "of the sealing key: %s"}})
	flags.DurationVar(&expires, "expires", 365*24*time.Hour, "when riffle check asks for a new one")
	show.flags(flags)
	flags.SortFlags = false
	return cmd
}

func newKeygenClient() *cobra.Command {
	var dir string
	var count int64
	var show output
	cmd := &cobra.Command{
		Use:   "client",
		Short: "Make clients' credentials",
		Long: `Keygen client makes the credentials with which enrolled clients sign their reports,
and the lines with which the registrar or the shuffler's operator enrols them.`,
		Example: `  riffle keygen client --out phone
  riffle keygen client --out phones --count 1000`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := config.GenerateCredentials(dir, int(count)); err != nil {
				return keygenError(err)
			}
			m := made{Role: "client", Dir: dir, Clients: int(count), Roster: filepath.Join(dir, config.RosterFile),
				Files: []string{filepath.Join(dir, config.CredentialsFile)}}
			return m.show(cmd, show, "give the roster lines to the registrar (or the shuffler's operator), over a channel that proves who they are from")
		},
	}
	flags := cmd.Flags()
	require(cmd, &dir, "out", "directory for the credentials, made if it is not there")
	bind(cmd, setting.Table{{Name: "count", Into: &count, Default: "1", Range: "[1, 1e7]", Help: "number of clients"}})
	show.flags(flags)
	flags.SortFlags = false
	return cmd
}

func newKeygenTLS() *cobra.Command {
	var dir string
	var hosts []string
	var valid time.Duration
	var show output
	cmd := &cobra.Command{
		Use:   "tls",
		Short: "Make a self-signed TLS certificate",
		Long: `Keygen tls makes a key and a certificate for HTTPS and prints the key's pin. Peers
and clients recognise a server by its pin, not by a certificate authority.`,
		Example: `  riffle keygen tls --out keys/shuffler --host shuffler.example --host 192.0.2.7`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if valid <= 0 {
				return usage("--expires %v must be above 0", valid)
			}
			for _, h := range hosts {
				if h == "" || strings.ContainsAny(h, " \t\n/:") && net.ParseIP(h) == nil {
					return usage("--host %q must be a name or an address, without a port", h)
				}
			}
			now := time.Now()
			pin, err := config.GenerateTLS(dir, hosts, now.Add(-time.Hour), now.Add(valid))
			if err != nil {
				return keygenError(err)
			}
			m := made{Role: "tls", Dir: dir, Pin: pin.String(), Expires: now.Add(valid).UTC().Format(time.RFC3339),
				Files: []string{filepath.Join(dir, config.CertificateKey)}}
			return m.show(cmd, show, "give the pin to everyone who connects, and to every peer that you connect to")
		},
	}
	flags := cmd.Flags()
	require(cmd, &dir, "out", "directory for the files, made if it is not there")
	flags.StringArrayVar(&hosts, "host", []string{"localhost", "127.0.0.1", "::1"}, "name or address of the server; may be repeated")
	flags.DurationVar(&valid, "expires", 10*365*24*time.Hour, "how long the certificate says it holds; pins do not look at it")
	show.flags(flags)
	flags.SortFlags = false
	return cmd
}
