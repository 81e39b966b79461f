"""The machine that the code runs on, looked at while it runs: files of other machines that it reads."""
