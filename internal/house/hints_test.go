package house

import (
	"bytes"
	"go/ast"
	"go/printer"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// hintStart matches the beginning of a command that a hint suggests.
var hintStart = regexp.MustCompile(`^(sudo )?(snapfs|chmod|chown|mkdir|mv|rm|ls|df|mount|umount|findmnt|fuser|btrfs|zfs) `)

// notPaths are the last identifiers of expressions that a hint may contain as they are: names of
// sandboxes, snapshots, stages, pools and datasets, which a shell never interprets, and texts
// that are commands themselves.
var notPaths = regexp.MustCompile(`^(name|names|id|sandbox|state|to|mark|at|group|above|dataset|source|promotion|limit|least|stages|unique|tundevice)$`)

// noPathCalls are functions whose results a hint may contain as they are.
var noPathCalls = regexp.MustCompile(`^(Quoted|login|longerTTL|poolOf|Join|String)$`)

// TestHintsQuotePaths: a person pastes the command of a hint into a shell, so each path in it goes
// through errs.Quoted.
func TestHintsQuotePaths(t *testing.T) {
	for path, src := range goFiles(t) {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/bench/") || strings.Contains(path, "/test/") ||
			strings.Contains(path, "internal/probe/") || strings.Contains(path, "internal/treetest/") { // only paths of devices, and no hints
			continue
		}
		fset, file := parse(t, path, src)
		ast.Inspect(file, func(n ast.Node) bool {
			sum, ok := n.(*ast.BinaryExpr)
			if !ok || sum.Op != token.ADD {
				return true
			}
			parts := operands(sum)
			first, ok := parts[0].(*ast.BasicLit)
			if !ok {
				return true
			}
			if text, err := strconv.Unquote(first.Value); err != nil || !hintStart.MatchString(text) {
				return true
			}
			for _, p := range parts[1:] {
				if !quoted(p) {
					var b bytes.Buffer
					_ = printer.Fprint(&b, fset, p)
					t.Errorf("%s: %s in a hint: pass a path through errs.Quoted", fset.Position(p.Pos()), b.String())
				}
			}
			return false
		})
	}
}

// operands returns the summands of a sum, from the left.
func operands(e ast.Expr) []ast.Expr {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return append(operands(sum.X), operands(sum.Y)...)
	}
	return []ast.Expr{e}
}

// quoted reports whether an expression needs no quotes in a hint: a literal, a call of
// errs.Quoted, or a name that is no path.
func quoted(e ast.Expr) bool {
	switch x := e.(type) {
	case *ast.BasicLit:
		return true
	case *ast.Ident:
		return notPaths.MatchString(strings.ToLower(x.Name))
	case *ast.SelectorExpr:
		return quoted(x.Sel)
	case *ast.CallExpr:
		switch f := x.Fun.(type) {
		case *ast.Ident:
			return noPathCalls.MatchString(f.Name)
		case *ast.SelectorExpr:
			return noPathCalls.MatchString(f.Sel.Name)
		}
	case *ast.IndexExpr:
		return quoted(x.X)
	}
	return false
}
