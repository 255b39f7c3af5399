"""Measuring the product on sets of questions with known support."""
