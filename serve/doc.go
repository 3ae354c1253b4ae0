// Package serve offers the operations on sandboxes to programs that act for an agent: it makes sandboxes,
// runs commands in them, compares, races and plans, and promotes after a person's approval.
//
// Read [Rules] first: the limits that a person set when the server started. An agent can ask for less and
// never for more. Then read [Service], whose methods are the operations. Each method opens the engine anew,
// which also repairs damage that a killed process left. The Service itself holds no state that a kill could
// lose.
//
// A Service acts only on sandboxes that were made through one, in the workspace of its rules, and never on
// those of the person. It knows no protocol; package serve/mcpserver speaks one.
package serve
