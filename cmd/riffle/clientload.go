package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/service/load"
	"github.com/riffle-dp/riffle/service/operate"
)

// loadFlags are the flags of riffle client --load.
type loadFlags struct {
	task        string
	connections string
	from        []string
	http1       bool
	share       bool
	atOnce      int
	rate        float64
	repeat      int
	seconds     int64
	reports     int64
	rounds      int64
	names       []string // of those that go with --load
}

func (l *loadFlags) flags(fs *pflag.FlagSet) {
	fs.StringVar(&l.task, "load", "", "load the deployment with reports of zeros in this task (64 hex digits), and measure")
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	own.StringVar(&l.connections, "connections", load.Each, "with --load: each (a client has a connection of its own), resumed, or kept")
	own.StringSliceVar(&l.from, "from", nil, "with --load: local addresses to connect from, in turn")
	own.BoolVar(&l.http1, "http1", false, "with --load: HTTP/1.1 in place of HTTP/2")
	own.BoolVar(&l.share, "share-fetches", false, "with --load: fetch announcement and model once for all clients")
	own.IntVar(&l.atOnce, "at-once", 64, "with --load: requests under way at a time")
	own.Float64Var(&l.rate, "rate", 0, "with --load: reports begun a second (0: no limit)")
	own.IntVar(&l.repeat, "repeat", 0, "with --load: how often a report that was taken is sent again")
	own.Int64Var(&l.seconds, "seconds", 60, "with --load: end after this time")
	own.Int64Var(&l.reports, "reports", 0, "with --load: end after as many reports (0: no limit)")
	own.Int64Var(&l.rounds, "rounds", 0, "with --load: end after as many rounds (0: no limit)")
	own.VisitAll(func(f *pflag.Flag) { l.names = append(l.names, f.Name) })
	fs.AddFlagSet(own)
}

// check refuses flags that do not go together.
func (l *loadFlags) check(changed func(string) bool) error {
	if !changed("load") {
		for _, name := range l.names {
			if changed(name) {
				return usage("--%s goes with --load", name)
			}
		}
		return nil
	}
	switch {
	case changed("check"), changed("gradients"), changed("answer-seconds"):
		return usage("--load has reports of zeros: it goes with none of --check, --gradients and --answer-seconds")
	case l.seconds < 1 || l.seconds > 7*86400:
		return usage("--seconds = %d must be between 1 and 604800", l.seconds)
	case l.atOnce < 1 || l.atOnce > 65536:
		return usage("--at-once = %d must be between 1 and 65536", l.atOnce)
	case !(l.rate >= 0) || l.repeat < 0 || l.reports < 0 || l.rounds < 0:
		return usage("--rate, --repeat, --reports and --rounds must not be negative")
	case !slices.Contains([]string{load.Each, load.Resumed, load.Kept}, l.connections):
		return usage("--connections = %q must be %s, %s or %s", l.connections, load.Each, load.Resumed, load.Kept)
	}
	return nil
}

// run loads a deployment, and prints what was measured, also after an interrupt.
func (l *loadFlags) run(cmd *cobra.Command, config string, show output) error {
	c := load.Config{Connections: l.connections, HTTP1: l.http1, Fetch: !l.share, AtOnce: l.atOnce, Rate: l.rate, Repeat: l.repeat, Reports: l.reports, Rounds: l.rounds}
	for _, text := range l.from {
		ip := net.ParseIP(text)
		if ip == nil {
			return usage("--from: %q is no address", text)
		}
		c.From = append(c.From, ip)
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), time.Duration(l.seconds)*time.Second)
	defer cancel()
	begun := time.Now()
	b := newBar(cmd.ErrOrStderr(), show, "load", "s", 0, l.seconds)
	c.Progress = func(r *load.Result) {
		faults := int64(0)
		for _, all := range r.Errors {
			for _, n := range all {
				faults += n
			}
		}
		b.set("load", fmt.Sprintf("%.0f reports/s", r.Rate), fmt.Sprintf("%d taken", r.Reports+r.Again), fmt.Sprintf("%d errors", faults), fmt.Sprintf("%.0f ms at most for 99 %%", 1e3*r.Requests["report"].P99))
		b.reached(int64(time.Since(begun).Seconds()))
	}
	r, err := operate.Load(ctx, config, l.task, c)
	b.clear()
	if r == nil {
		return operateError(err)
	}
	var printed error
	if show.json {
		printed = printJSON(cmd.OutOrStdout(), r)
	} else {
		p := printer{w: cmd.OutOrStdout()}
		printLoad(&p, r)
		printed = p.err
	}
	switch {
	case cmd.Context().Err() != nil && !terminated(cmd.Context()):
		return errors.Join(printed, fmt.Errorf("interrupted: %w", context.Canceled))
	case err != nil && ctx.Err() == nil:
		return operateError(err)
	case printed == nil && r.Reports == 0:
		return errors.New("no report was taken")
	}
	return printed
}

func printLoad(p *printer, r *load.Result) {
	p.row("reports taken", "%d by %d clients in %d rounds, and %d again", r.Reports, r.Clients, r.Rounds, r.Again)
	p.row("a second", "%.1f in %.1f s", r.Rate, r.Seconds)
	p.row("connections", "%d opened (%s), %d resumed", r.Opened, r.Connections, r.Resumed)
	p.row("bytes over TCP", "%d sent, %d received", r.Sent, r.Received)
	p.line("")
	p.line("%-14s %9s %10s %10s %10s %10s", "milliseconds", "answers", "median", "90 %", "99 %", "longest")
	for _, kind := range slices.Sorted(maps.Keys(r.Requests)) {
		t := r.Requests[kind]
		p.line("%-14s %9d %10.1f %10.1f %10.1f %10.1f", kind, t.Count, 1e3*t.Median, 1e3*t.P90, 1e3*t.P99, 1e3*t.Longest)
	}
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		all := r.Errors[kind]
		var parts []string
		for _, why := range slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Or(cmp.Compare(all[b], all[a]), cmp.Compare(a, b)) }) {
			parts = append(parts, fmt.Sprintf("%s %d", why, all[why]))
		}
		p.row("errors: "+kind, "%s", strings.Join(parts, ", "))
	}
	for _, cause := range slices.Sorted(maps.Keys(r.Declined)) {
		p.row("declined", "%s %d", cause, r.Declined[cause])
	}
}
