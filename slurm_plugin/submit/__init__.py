"""What users submit with: dally-sbatch, and the hints that job_submit.lua gives."""
