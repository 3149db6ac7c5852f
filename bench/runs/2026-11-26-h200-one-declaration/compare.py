import json,glob,statistics
def walk(o,p,out):
    if isinstance(o,dict):
        ident=''.join(str(o[k])[:40]+'|' for k in ('name','system','way','kernel','method','case','label','what','matrix','store') if k in o and isinstance(o[k],(str,int)))
        for k,v in o.items(): walk(v,p+'/'+ident+k,out)
    elif isinstance(o,list):
        for i,v in enumerate(o): walk(v,p+'/'+str(i),out)
    elif isinstance(o,(int,float)) and not isinstance(o,bool): out[p]=float(o)
for name in ('okp','spmv','ildu0','cbcg','answer','multilevel'):
    B={}
    for who in ('old','new'):
        b={}
        for r in (1,2):
            for f in glob.glob(f'{name}-{who}-{r}/*.json'):
                if 'target' in f: continue
                o={}; walk(json.load(open(f)),'',o)
                for k,v in o.items(): b[k]=min(b.get(k,1e9),v)
        B[who]=b
    ks=[k for k in B['old'] if k in B['new'] and B['old'][k]>0]
    def show(title,f):
        r=sorted((B['new'][k]/B['old'][k],k) for k in ks if f(k))
        if r:
            v=[x for x,_ in r]; print(name,title,len(v),'median %.3f min %.3f max %.3f'%(statistics.median(v),v[0],v[-1]))
            for x,k in r[-3:]: print('     %.3f %.2e %.2e %s'%(x,B['old'][k],B['new'][k],k[-100:]))
    show('krylith median',lambda k:'rylith' in k and k.endswith('/median') and 'second' in k)
    show('setup',lambda k:('setup' in k.lower() or 'set-up' in k.lower()) and (k.endswith('setup_seconds') or k.endswith('setup') or k.endswith('/median')) and ('rylith' in k or name=='cbcg'))
    show('solve',lambda k:'solve' in k and (k.endswith('/median') or k.endswith('solve_seconds') or k.endswith('/seconds')))
    show('kernel',lambda k:name=='cbcg' and 'kernels' in k and 'second' in k)
