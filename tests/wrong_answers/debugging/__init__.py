"""Wrong answers to the exercises of chapter 14."""
