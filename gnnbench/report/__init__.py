"""Reports for people: what the tables, pictures and pages of all kinds of results are made with.

tables       a table for the terminal, a notebook, Markdown, LaTeX and CSV
plots        curves and bars for PNG, SVG and PDF
live         progress while something runs, on a terminal or in a notebook
datasets     datasets and their parts as tables
page         results as one page, for a browser
"""
