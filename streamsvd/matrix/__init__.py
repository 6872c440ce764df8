"""The working matrix, in memory or in mapped files, and its columns as one worker holds them."""
