"""Tests of the way from a chapter's source to the learner's copy."""
