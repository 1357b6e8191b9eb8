"""What people see: tables of runs, comparisons, datasets and the installation, for terminal, Markdown and CSV."""
