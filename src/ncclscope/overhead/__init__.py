"""The verb `overhead`. In: a user's command. Out: what recording adds to it."""
