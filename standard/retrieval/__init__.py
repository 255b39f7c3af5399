"""Finding passages: dense and lexical legs, fusion, links, and what a search shows."""
