"""What the tests of programs, notebooks and the zoo share."""
