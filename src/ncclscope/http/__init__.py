"""HTTP servers of ncclscope: one small server, and the check of the Host header."""
