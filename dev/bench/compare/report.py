def tables(figures):
    return ""
def write(figures, out):
    pass
