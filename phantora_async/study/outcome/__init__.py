"""What a sweep has found: which trials are best, for a terminal, for programs, as files and as a page.

Lives here: `front` which are best; `text` for a terminal and JSON; `files` tables and a picture; `page` for a browser.
Comes in: trials with their results; prices.
Goes out: text, JSON, CSV, Parquet, pictures, HTML.
May import: study.trials; profiles; budget, errors, pages, spending, wording.
"""
