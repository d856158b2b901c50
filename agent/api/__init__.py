"""The HTTP face: reads the board and posts commands to the loop. It decides nothing."""
