// Package page writes changes as a page for review in a browser: one HTML file that refers to
// nothing outside.
//
// The content of a sandbox is hostile, and so are its file names. Three independent measures
// prevent it from acting in the page. All text from a tree is written between tags, escaped,
// with control characters and invisible or reordering characters made visible; it never
// becomes part of a tag, an address, a style or a script, which the type [markup] ensures.
// The page's content security policy lets a browser run only the script and apply only the
// style whose hashes it names, and fetch nothing. And the script never creates markup from
// text.
//
// The page is readable without the script. The script folds, filters, jumps, and shows both
// sides beside one another; only the open page stores the marks for reviewed files.
//
// The package does not use html/template: there is only one context to escape for, it prevents
// the linker from removing unused methods of the whole program, and it ignores invisible
// characters.
//
// # Where to start
//
// [Page] and [Write], then sheet: every byte of the page passes through its methods, which decide
// what gets escaped.
//
// The package must not know sandboxes, and must not convert foreign text to [markup].
package page
