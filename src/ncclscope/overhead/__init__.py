"""`ncclscope overhead`: what recording adds to a user's own command."""
