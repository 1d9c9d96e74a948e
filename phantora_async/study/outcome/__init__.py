"""Finds the best trials of a sweep, and shows them on a terminal, to programs, as files and as a page.

Lives here: `front` finds the best; `text` for a terminal and JSON; `files` tables and a picture; `page` for a browser.
Comes in: trials with their results; prices.
Goes out: text, JSON, CSV, Parquet, pictures, HTML.
May import: study.trials; profiles; budget, errors, pages, spending, wording.
"""
