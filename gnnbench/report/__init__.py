"""Reports for people: one module of tables for each kind of result.

tables       a table for the terminal, a notebook, Markdown, LaTeX and CSV
plots        curves and bars for PNG, SVG and PDF
live         progress while something runs, on a terminal or in a notebook
run comparison inference bench profile suite tune reproduce sweep   tables
history datasets installation   likewise
page         results as one page, for a browser
"""
