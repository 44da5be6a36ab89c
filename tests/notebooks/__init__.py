"""Tests of the course's notebooks as they are stored, and of the way they are run again."""
