package main

import (
	"context"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/page/plan"
)

// accountantName is a hidden command: the process that answers questions of the page /plan.
const accountantName = "answer-plan"

func newAccountant() *cobra.Command {
	return &cobra.Command{Use: accountantName, Hidden: true, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		in, questions := io.Pipe()
		go func() {
			_, _ = io.Copy(questions, os.Stdin)
			os.Exit(exitDone) // who asked has ended; the question under way counts no more
		}()
		return plan.Accountant(in, cmd.OutOrStdout())
	}}
}

// accountant is this program as the process that answers.
func accountant() (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, accountantName)
	cmd.Args[0] = os.Args[0] // as in children.start
	apart(cmd)               // Ctrl-C is for the parent, whose end it notices
	return cmd, nil
}

// loadProgram returns a program for browsers, and shows how far its compilation is if it has to be compiled.
func loadProgram(ctx context.Context, p wasmbuild.Program, show output, stderr io.Writer) ([]byte, error) {
	var b *bar
	defer func() { b.clear() }()
	return p.Load(ctx, func(name string, more, of int) {
		if more == 0 {
			show.note(stderr, "compiling %s: half a minute the first time, then it is in Go's build cache", name)
			b = newBar(stderr, show, "compiling", "packages", 0, int64(of))
		}
		b.add(int64(more))
	})
}

// planSite writes the page /plan as static files.
func planSite(ctx context.Context, dir string, show output, stderr io.Writer) error {
	program, err := loadProgram(ctx, wasmbuild.Accountant, show, stderr)
	if err != nil {
		return err
	}
	return plan.Site(dir, program)
}
