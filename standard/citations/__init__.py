"""From source tags in a model's text ([S1], [S1, S3]) to citations of exact spans, as the text streams."""
