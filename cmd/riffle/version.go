package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version returns the module's version and the commit of the build, as far as the build
// recorded them.
func version() (number, commit string) {
	number, commit = "devel", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return number, commit
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		number = v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += "-modified"
		}
	}
	return number, commit
}

func newVersion() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "Print the version", Example: "  riffle version --json", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			number, commit := version()
			if asJSON {
				return json.NewEncoder(cmd.OutOrStdout()).Encode(map[string]string{
					"version": number, "commit": commit, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "riffle %s (commit %s, %s, %s/%s)\n", number, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
