// Package uplot carries uPlot 1.6.32, a chart library in JavaScript, so that
// pages can inline it and need no network. The files are those of the npm
// package, unchanged; README.md has their source and sums.
package uplot

import _ "embed"

// Files of the package. Nobody changes them.
var (
	// Script is the library as a classic script that defines the global uPlot.
	//
	//go:embed uPlot.iife.min.js
	Script string
	// Style is the stylesheet that the library's elements need.
	//
	//go:embed uPlot.min.css
	Style string
	// Licence must accompany every copy of Script and Style.
	//
	//go:embed LICENSE
	Licence string
)
