"""One moment of a job. In: live pages or last events. Out: what each rank is doing."""
