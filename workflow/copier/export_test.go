package copier

// Unpacked is unpack, which writes an archive from a sandbox to the host.
var Unpacked = unpack
