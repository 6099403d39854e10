"""How answers look. In: results of analysis and diagnose. Out: text, JSON, CSV, HTML."""
