// Package uplot carries uPlot 1.6.32, a chart library in JavaScript, so that
// pages can inline it and need no network. The files are those of the npm
// package, unchanged; README.md has their source and sums.
package uplot

import _ "embed"

var (
	//go:embed uPlot.iife.min.js
	script string
	//go:embed uPlot.min.css
	style string
	//go:embed LICENSE
	licence string
)

// Script returns the library as a classic script that defines the global uPlot.
func Script() string { return script }

// Style returns the stylesheet the library's elements need.
func Style() string { return style }

// Licence returns the text that must accompany every copy of Script and Style.
func Licence() string { return licence }
