// Package agents tests `snapfs mcp` as agents use it: a client of the Model Context Protocol starts the real
// program and works through a whole session. It has tests only.
package agents
