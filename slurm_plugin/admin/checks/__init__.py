"""What `dally slurm doctor` looks at: facts about a site, gathered once, and checks that judge them."""
