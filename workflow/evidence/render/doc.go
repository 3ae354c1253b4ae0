// Package render shows a verified record to those who do not read bundles: [Page] to a person, as
// one HTML page, and [Lines] to other systems, as events of OCSF, CloudEvents or OpenTelemetry.
//
// Both take a bundle and what verification said about it. They show what the records say and
// nothing else, so arguments and values that are redacted there are redacted here.
package render
