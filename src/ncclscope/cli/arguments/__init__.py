"""Arguments of verbs. In: a parser. Out: the parser with a verb's options, without numpy."""
