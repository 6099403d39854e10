"""A small HTTP server. In: a handler. Out: answers to requests whose Host is allowed."""
